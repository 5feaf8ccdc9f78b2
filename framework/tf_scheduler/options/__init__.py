"""options.json -> ServiceSpec, or every reason why not. The loader takes bytes: files are for others."""

from .patterns import compiled_later

# Before any of our modules does: it compiles patterns for addresses, which no option is, and that takes a third of it.
with compiled_later():
    import marshmallow  # noqa: F401
