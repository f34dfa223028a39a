"""Breaks a running Gatehouse on purpose and counts broken promises. Entry: scripts/chaos."""
