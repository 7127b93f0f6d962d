#include "shmsync.h"
#include "shmsync.h"

int main(void) { return sizeof(shmsync_mutex) + sizeof(shmsync_futex) == 0; }
