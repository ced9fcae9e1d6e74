"""What every room may use: configs, spaces, numpy policies, snapshots."""
