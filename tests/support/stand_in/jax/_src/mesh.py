"""A mesh, which no test makes."""


class Mesh:
    pass
