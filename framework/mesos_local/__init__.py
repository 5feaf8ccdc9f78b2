"""Run Apache Mesos (and ZooKeeper) locally; entry point: `cluster.LocalCluster`."""
