"""What to run for which figure or table: plain values, and what runs them."""
