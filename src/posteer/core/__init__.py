"""What every room stands on: errors, files, locks, shapes, streams, specifications, limits."""
