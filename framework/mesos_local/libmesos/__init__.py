"""Download libmesos from the package index, relink it, and run Mesos with it."""
