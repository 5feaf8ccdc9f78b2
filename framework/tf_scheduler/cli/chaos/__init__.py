"""`dcos-tensorflow local chaos`: a real training on a local cluster, and everything that can be killed is killed."""
