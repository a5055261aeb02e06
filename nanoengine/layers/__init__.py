"""The layers that models are built from; each knows how to cut its weights for one rank."""
