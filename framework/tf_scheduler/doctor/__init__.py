"""`dcos-tensorflow doctor`: facts about a cluster and a service, and findings."""
