"""Download, verify, relink and run Mesos from the libmesos in the package index."""
