"""A mesh, which no function of the stand-in makes."""


class Mesh:
    pass
