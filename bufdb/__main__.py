"""`python -m bufdb`."""

from bufdb.cli import main

if __name__ == "__main__":
    main()
