"""Where accuracy goes: a quantised network with some of its parts in float, and what each costs."""
