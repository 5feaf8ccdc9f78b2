"""Offer rounds: match gangs to offers, reserve, launch, decline, suppress, revive."""
