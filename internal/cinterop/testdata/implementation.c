#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"
