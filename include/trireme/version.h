/* The version, in its one place: the Makefile, trireme.pc and the program read it from here. */
#ifndef TRIREME_VERSION_H
#define TRIREME_VERSION_H

#define TRIREME_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the library that this program runs with, which may be another than it was built with. */
const char *tr_version(void);

#ifdef __cplusplus
}
#endif
#endif
