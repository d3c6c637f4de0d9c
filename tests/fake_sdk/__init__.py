"""Fake SDKs for the tests of vendor packages: how they are compiled. Never installed."""
