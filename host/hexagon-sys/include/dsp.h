// Everything that a library on the DSP may ask the system for.
#include "dsp/compute_resource.h"
#include "dsp/dspqueue.h"
#include "dsp/hap.h"
#include "dsp/qurt.h"
#include "dsp/types.h"
