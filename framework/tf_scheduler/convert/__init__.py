"""Convert other systems' job files to options files; note unsupported fields."""
