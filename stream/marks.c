/* marks.c: what says that a picture was generated. In every key frame of H.264 an SEI message "user data unregistered"
 * (ITU-T H.264 D.1.7), which survives when the stream leaves its file; in the file an XMP packet with IPTC's digital source type.
 * Not here: C2PA manifests, visible labels. */
#include "stream/internal.h"

#include <stdlib.h>
#include <string.h>

const uint8_t lti_sei_uuid[16] = {0x8f, 0x1d, 0x6c, 0x52, 0x3b, 0xe7, 0x4a, 0x90,
                                  0xa4, 0xc6, 0x27, 0x9d, 0x5e, 0x81, 0xf3, 0x4b};
const uint8_t lti_xmp_uuid[16] = {0xbe, 0x7a, 0xcf, 0xcb, 0x97, 0xa9, 0x42, 0xe8,
                                  0x9c, 0x71, 0x99, 0x94, 0x91, 0xe3, 0xaf, 0xac};

static const char sei_text[] =
    "AI-generated; generator=Longtake; digitalSourceType=" LTI_DIGITAL_SOURCE;

enum { NAL_SEI = 6, SEI_USER_DATA_UNREGISTERED = 5, SEI_BYTES = 16 + sizeof sei_text };
/* start code, NAL type, payload type, payload size, payload, stop bit. The payload holds no two zero bytes in a row
 * (the text's one terminating zero is followed by the stop bit), so nothing needs escaping. */
enum { SEI_NAL_BYTES = 4 + 1 + 1 + 1 + SEI_BYTES + 1 };
_Static_assert(SEI_BYTES < 255, "the payload size is one byte");

lt_status lti_mark_packet(lt_ctx *ctx, AVPacket *pkt)
{
    const int old = pkt->size;
    if (av_grow_packet(pkt, SEI_NAL_BYTES) < 0)
        return lti_fail(ctx, LT_ERR_MEM, "no memory for a video packet");
    uint8_t *p = pkt->data;
    memmove(p + SEI_NAL_BYTES, p, (size_t)old);
    const uint8_t head[] = {0, 0, 0, 1, NAL_SEI, SEI_USER_DATA_UNREGISTERED, SEI_BYTES};
    memcpy(p, head, sizeof head);
    memcpy(p + sizeof head, lti_sei_uuid, 16);
    memcpy(p + sizeof head + 16, sei_text, sizeof sei_text);
    p[SEI_NAL_BYTES - 1] = 0x80;
    return LT_OK;
}

bool lti_packet_is_marked(const uint8_t *data, size_t size)
{
    return size >= 16 && memmem(data, size, lti_sei_uuid, 16) != NULL;
}

static const char xmp[] = "<?xpacket begin=\"\xef\xbb\xbf\" id=\"W5M0MpCehiHzreSzNTczkc9d\"?>\n"
                          "<x:xmpmeta xmlns:x=\"adobe:ns:meta/\">\n"
                          " <rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">\n"
                          "  <rdf:Description rdf:about=\"\"\n"
                          "    xmlns:Iptc4xmpExt=\"http://iptc.org/std/Iptc4xmpExt/2008-02-29/\"\n"
                          "    xmlns:xmp=\"http://ns.adobe.com/xap/1.0/\"\n"
                          "    xmp:CreatorTool=\"Longtake\"\n"
                          "    Iptc4xmpExt:DigitalSourceType=\"" LTI_DIGITAL_SOURCE "\"/>\n"
                          " </rdf:RDF>\n"
                          "</x:xmpmeta>\n"
                          "<?xpacket end=\"r\"?>";

lt_status lti_xmp_box(lt_ctx *ctx, uint8_t **out, size_t *size)
{
    const size_t text = sizeof xmp - 1, n = 8 + 16 + text;
    *out = malloc(n);
    if (!*out) return lti_fail(ctx, LT_ERR_MEM, "no memory for the XMP box");
    const uint8_t head[] = {
        (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n, 'u', 'u', 'i', 'd'};
    memcpy(*out, head, 8);
    memcpy(*out + 8, lti_xmp_uuid, 16);
    memcpy(*out + 24, xmp, text);
    *size = n;
    return LT_OK;
}
