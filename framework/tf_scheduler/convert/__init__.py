"""Convert job files of other systems to options files, with a note on each field that has no equivalent."""
