"""The report's charts: Vega-Lite specifications made with Altair, one function each, drawn by vl-convert."""
