// Everything that a program on the host may ask the DSP's driver library for.
#include "host/AEEStdErr.h"
#include "host/domains.h"
#include "host/dspqueue.h"
#include "host/remote.h"
#include "host/rpcmem.h"
