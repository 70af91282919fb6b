"""`bufdb fit`: what to change in a function so that it fits, proved by compiling, as a patch."""
