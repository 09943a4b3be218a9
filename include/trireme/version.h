/* The version, in its one place: the Makefile, trireme.pc and the program read it from here. */
#ifndef TRIREME_VERSION_H
#define TRIREME_VERSION_H

#define TRIREME_VERSION "0.1.0"

#endif
