/* For TestProbeOfFencesBesideAQuestion: asks whether fences may work, while a probe in another thread finds that they
 * work. probes.h has the question and the results of the probes, cut out of the header. */
#include <stdio.h>

#define SHMI_FN static inline __attribute__((unused))

static int until; /* loads before the probe ends */
static int loads;
static int shmi_has(const int *feature);

#include "probes.h"

static int shmi_has(const int *feature)
{
    if (loads++ == until) { /* as shmi_probe_one */
        shmi_have.membarrier = 1;
        shmi_have.known |= SHMI_knowMembarrier;
    }
    return *feature;
}

int main(void)
{
    for (until = 0; until < 3; until++) {
        loads = shmi_have.membarrier = shmi_have.known = 0;
        if (!shmi_may_have_fences()) {
            printf("fences count as absent if the probe ends before load %d\n", until + 1);
            return 1;
        }
    }
    return 0;
}
