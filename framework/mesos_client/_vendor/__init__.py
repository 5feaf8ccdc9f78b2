"""Code of other projects, which scripts/build_backend.py downloads and changes."""
