/* For TestFencesInBuildsForTheThreadSanitizer: a function for each fence. fences.h has the fences, cut out of the
 * header. */
#define SHMI_FN static inline __attribute__((unused, always_inline))

#include "fences.h"

void full(void);
void loads(void);
void after_cas(void);
void full(void) { shmi_full_fence(); }
void loads(void) { shmi_load_fence(); }
void after_cas(void) { shmi_order_loads(); }
