"""What the sessions of noxfile.py are made of; each module can be used, and is tested, without nox."""
