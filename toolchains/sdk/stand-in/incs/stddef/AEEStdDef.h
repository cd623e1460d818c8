/* Names of plain types; the real folder has AEEStdDef.idl and others as well. */
#ifndef AEESTDDEF_H
#define AEESTDDEF_H

typedef unsigned int uint32;
typedef unsigned char boolean;
typedef int AEEResult;

#endif
