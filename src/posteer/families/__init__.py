"""What a latent is: the protocol, and one package for each family."""
