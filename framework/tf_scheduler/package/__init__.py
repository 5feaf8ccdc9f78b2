"""Build the DC/OS package: read its sources, check, render and publish them."""
