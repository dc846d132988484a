/* entities.h: named characters of HTML 4 and the few of HTML 5 that people type. Included by clean.c only. */
#ifndef LTI_VIDEO_ENTITIES_H
#define LTI_VIDEO_ENTITIES_H

#include <stdint.h>

/* U+00A0 to U+00FF in order. These may stand without a semicolon. */
static const char *const latin_names[96] = {
    "nbsp",   "iexcl",  "cent",   "pound",  "curren", "yen",    "brvbar", "sect",   "uml",
    "copy",   "ordf",   "laquo",  "not",    "shy",    "reg",    "macr",   "deg",    "plusmn",
    "sup2",   "sup3",   "acute",  "micro",  "para",   "middot", "cedil",  "sup1",   "ordm",
    "raquo",  "frac14", "frac12", "frac34", "iquest", "Agrave", "Aacute", "Acirc",  "Atilde",
    "Auml",   "Aring",  "AElig",  "Ccedil", "Egrave", "Eacute", "Ecirc",  "Euml",   "Igrave",
    "Iacute", "Icirc",  "Iuml",   "ETH",    "Ntilde", "Ograve", "Oacute", "Ocirc",  "Otilde",
    "Ouml",   "times",  "Oslash", "Ugrave", "Uacute", "Ucirc",  "Uuml",   "Yacute", "THORN",
    "szlig",  "agrave", "aacute", "acirc",  "atilde", "auml",   "aring",  "aelig",  "ccedil",
    "egrave", "eacute", "ecirc",  "euml",   "igrave", "iacute", "icirc",  "iuml",   "eth",
    "ntilde", "ograve", "oacute", "ocirc",  "otilde", "ouml",   "divide", "oslash", "ugrave",
    "uacute", "ucirc",  "uuml",   "yacute", "thorn",  "yuml",
};

/* The others; `bare`: may stand without a semicolon. */
static const struct entity {
    const char *name;
    uint16_t code;
    uint8_t bare;
} entities[] = {
    {"AMP", 0x0026, 1},     {"Alpha", 0x0391, 0},   {"Beta", 0x0392, 0},     {"COPY", 0x00A9, 1},
    {"Chi", 0x03A7, 0},     {"Dagger", 0x2021, 0},  {"Delta", 0x0394, 0},    {"Epsilon", 0x0395, 0},
    {"Eta", 0x0397, 0},     {"GT", 0x003E, 1},      {"Gamma", 0x0393, 0},    {"Iota", 0x0399, 0},
    {"Kappa", 0x039A, 0},   {"LT", 0x003C, 1},      {"Lambda", 0x039B, 0},   {"Mu", 0x039C, 0},
    {"NewLine", 0x000A, 0}, {"Nu", 0x039D, 0},      {"OElig", 0x0152, 0},    {"Omega", 0x03A9, 0},
    {"Omicron", 0x039F, 0}, {"Phi", 0x03A6, 0},     {"Pi", 0x03A0, 0},       {"Prime", 0x2033, 0},
    {"Psi", 0x03A8, 0},     {"QUOT", 0x0022, 1},    {"REG", 0x00AE, 1},      {"Rho", 0x03A1, 0},
    {"Scaron", 0x0160, 0},  {"Sigma", 0x03A3, 0},   {"TRADE", 0x2122, 0},    {"Tab", 0x0009, 0},
    {"Tau", 0x03A4, 0},     {"Theta", 0x0398, 0},   {"Upsilon", 0x03A5, 0},  {"Xi", 0x039E, 0},
    {"Yuml", 0x0178, 0},    {"Zeta", 0x0396, 0},    {"alefsym", 0x2135, 0},  {"alpha", 0x03B1, 0},
    {"amp", 0x0026, 1},     {"and", 0x2227, 0},     {"ang", 0x2220, 0},      {"apos", 0x0027, 0},
    {"ast", 0x002A, 0},     {"asymp", 0x2248, 0},   {"bdquo", 0x201E, 0},    {"beta", 0x03B2, 0},
    {"bsol", 0x005C, 0},    {"bull", 0x2022, 0},    {"cap", 0x2229, 0},      {"check", 0x2713, 0},
    {"chi", 0x03C7, 0},     {"circ", 0x02C6, 0},    {"clubs", 0x2663, 0},    {"colon", 0x003A, 0},
    {"comma", 0x002C, 0},   {"commat", 0x0040, 0},  {"cong", 0x2245, 0},     {"crarr", 0x21B5, 0},
    {"cross", 0x2717, 0},   {"cup", 0x222A, 0},     {"dArr", 0x21D3, 0},     {"dagger", 0x2020, 0},
    {"darr", 0x2193, 0},    {"dash", 0x2010, 0},    {"delta", 0x03B4, 0},    {"diams", 0x2666, 0},
    {"dollar", 0x0024, 0},  {"empty", 0x2205, 0},   {"emsp", 0x2003, 0},     {"ensp", 0x2002, 0},
    {"epsilon", 0x03B5, 0}, {"equals", 0x003D, 0},  {"equiv", 0x2261, 0},    {"eta", 0x03B7, 0},
    {"euro", 0x20AC, 0},    {"excl", 0x0021, 0},    {"exist", 0x2203, 0},    {"fnof", 0x0192, 0},
    {"forall", 0x2200, 0},  {"frasl", 0x2044, 0},   {"gamma", 0x03B3, 0},    {"ge", 0x2265, 0},
    {"grave", 0x0060, 0},   {"gt", 0x003E, 1},      {"hArr", 0x21D4, 0},     {"harr", 0x2194, 0},
    {"hearts", 0x2665, 0},  {"hellip", 0x2026, 0},  {"hyphen", 0x2010, 0},   {"image", 0x2111, 0},
    {"infin", 0x221E, 0},   {"int", 0x222B, 0},     {"iota", 0x03B9, 0},     {"isin", 0x2208, 0},
    {"kappa", 0x03BA, 0},   {"lArr", 0x21D0, 0},    {"lambda", 0x03BB, 0},   {"lang", 0x27E8, 0},
    {"larr", 0x2190, 0},    {"lceil", 0x2308, 0},   {"lcub", 0x007B, 0},     {"ldquo", 0x201C, 0},
    {"le", 0x2264, 0},      {"lfloor", 0x230A, 0},  {"lowast", 0x2217, 0},   {"lowbar", 0x005F, 0},
    {"loz", 0x25CA, 0},     {"lpar", 0x0028, 0},    {"lrm", 0x200E, 0},      {"lsaquo", 0x2039, 0},
    {"lsqb", 0x005B, 0},    {"lsquo", 0x2018, 0},   {"lt", 0x003C, 1},       {"mdash", 0x2014, 0},
    {"minus", 0x2212, 0},   {"mu", 0x03BC, 0},      {"nabla", 0x2207, 0},    {"ndash", 0x2013, 0},
    {"ne", 0x2260, 0},      {"ni", 0x220B, 0},      {"notin", 0x2209, 0},    {"nsub", 0x2284, 0},
    {"nu", 0x03BD, 0},      {"num", 0x0023, 0},     {"oelig", 0x0153, 0},    {"oline", 0x203E, 0},
    {"omega", 0x03C9, 0},   {"omicron", 0x03BF, 0}, {"oplus", 0x2295, 0},    {"or", 0x2228, 0},
    {"otimes", 0x2297, 0},  {"part", 0x2202, 0},    {"percnt", 0x0025, 0},   {"period", 0x002E, 0},
    {"permil", 0x2030, 0},  {"perp", 0x22A5, 0},    {"phi", 0x03C6, 0},      {"pi", 0x03C0, 0},
    {"piv", 0x03D6, 0},     {"plus", 0x002B, 0},    {"prime", 0x2032, 0},    {"prod", 0x220F, 0},
    {"prop", 0x221D, 0},    {"psi", 0x03C8, 0},     {"quest", 0x003F, 0},    {"quot", 0x0022, 1},
    {"rArr", 0x21D2, 0},    {"radic", 0x221A, 0},   {"rang", 0x27E9, 0},     {"rarr", 0x2192, 0},
    {"rceil", 0x2309, 0},   {"rcub", 0x007D, 0},    {"rdquo", 0x201D, 0},    {"real", 0x211C, 0},
    {"rfloor", 0x230B, 0},  {"rho", 0x03C1, 0},     {"rlm", 0x200F, 0},      {"rpar", 0x0029, 0},
    {"rsaquo", 0x203A, 0},  {"rsqb", 0x005D, 0},    {"rsquo", 0x2019, 0},    {"sbquo", 0x201A, 0},
    {"scaron", 0x0161, 0},  {"sdot", 0x22C5, 0},    {"semi", 0x003B, 0},     {"sigma", 0x03C3, 0},
    {"sigmaf", 0x03C2, 0},  {"sim", 0x223C, 0},     {"sol", 0x002F, 0},      {"spades", 0x2660, 0},
    {"star", 0x2606, 0},    {"starf", 0x2605, 0},   {"sub", 0x2282, 0},      {"sube", 0x2286, 0},
    {"sum", 0x2211, 0},     {"sup", 0x2283, 0},     {"supe", 0x2287, 0},     {"tau", 0x03C4, 0},
    {"there4", 0x2234, 0},  {"theta", 0x03B8, 0},   {"thetasym", 0x03D1, 0}, {"thinsp", 0x2009, 0},
    {"tilde", 0x02DC, 0},   {"trade", 0x2122, 0},   {"uArr", 0x21D1, 0},     {"uarr", 0x2191, 0},
    {"upsih", 0x03D2, 0},   {"upsilon", 0x03C5, 0}, {"verbar", 0x007C, 0},   {"vert", 0x007C, 0},
    {"weierp", 0x2118, 0},  {"xi", 0x03BE, 0},      {"zeta", 0x03B6, 0},     {"zwj", 0x200D, 0},
    {"zwnj", 0x200C, 0},
};

/* What Windows-1252 has at 0x80 to 0x9F; 0: nothing. */
static const uint16_t windows_1252[32] = {
    0x20AC, 0x0000, 0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0x0000, 0x017D, 0x0000, 0x0000, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x0000, 0x017E, 0x0178,
};

#endif
