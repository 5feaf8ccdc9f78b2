"""The program `dcos-tensorflow`: its commands, output, and local clusters and services."""
