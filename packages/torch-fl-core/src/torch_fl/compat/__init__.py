"""Help for programs and libraries that know nothing of flagos: asked for, never done by an import, and
undone."""
