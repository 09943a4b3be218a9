/* What the printer and the parser of manifests agree on. The checksum comes first, so that its
 * digits stand at a fixed place: it is of the whole text with zeros for these 16 digits. */
#ifndef TRI_CKPT_MANIFEST_TEXT_H
#define TRI_CKPT_MANIFEST_TEXT_H

#define TRI_MANIFEST_OPENING "{\"checksum\":\""
#define TRI_MANIFEST_FORMAT  "trireme-checkpoint"
enum { TRI_MANIFEST_DIGITS_AT = sizeof TRI_MANIFEST_OPENING - 1 };

#endif
