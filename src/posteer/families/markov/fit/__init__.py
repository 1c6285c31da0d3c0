"""A conjugate prior fitted to a bank: mixtures of products of Dirichlets."""
