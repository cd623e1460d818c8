/* A header folder of the stand-in; the real one has AEEStdDef.idl and others. */
