"""What people see: terminal, figures, pages. The only rooms that write sentences."""
