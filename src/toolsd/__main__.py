"""`python -m toolsd`."""

from toolsd.cli import main

if __name__ == "__main__":
    main()
