"""Endpoints of the API: paths, parameters, and the views or commands behind them."""
