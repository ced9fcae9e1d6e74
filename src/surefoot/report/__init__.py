"""Reports on runs: statistics over seeds, figures, tables and one HTML page."""
