"""Offer rounds: match gangs to offers, launch, decline, suppress, revive."""
