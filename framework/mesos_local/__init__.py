"""Run a real Apache Mesos (and ZooKeeper) on this machine; `cluster.LocalCluster` is the entry point."""
