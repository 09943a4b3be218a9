/* What `trireme place --devices` prints beside the tables of devices and links. */
#ifndef TRI_CLI_DOC_DEVICES_PAGE_H
#define TRI_CLI_DOC_DEVICES_PAGE_H

#include "base/text.h"

/* Profiles of the devices, clusters and software. */
void tri_cli_list_costs(tri_text *text);
/* All of it as a page, docs/devices.md. */
void tri_cli_write_devices_page(tri_text *text);

#endif
