# What make and CMake share: the flags of the library, one list in a line.
compile_flags = -std=c11 -Wall -Wextra -D_GNU_SOURCE -DSHMSYNC_IMPLEMENTATION -fPIC -fexceptions -ffunction-sections -fdata-sections
shared_flags = -ftls-model=initial-exec -fvisibility=hidden -DSHMSYNC_EXPORTS
link_flags = -Wl,-z,nodelete,-z,defs
