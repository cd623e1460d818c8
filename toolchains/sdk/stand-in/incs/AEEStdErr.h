/* A header folder of the stand-in; the real one has AEEStdErr.h and others. */
