/* cache_fixture.h: a small cache of a policy, for the tests of caches. */
#ifndef LT_TESTS_CACHE_FIXTURE_H
#define LT_TESTS_CACHE_FIXTURE_H

#include "attention/attention.h"
#include "tests/guard_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HEADS = 2, SIZE = 12, DIM = HEADS * SIZE, ROWS = 2, COLS = 3, TOKENS = ROWS * COLS };

static inline lt_cache_options options(const char *policy)
{
    lt_cache_options o = {
        .layers = 2, .heads = HEADS, .head_dim = SIZE, .rows = ROWS, .cols = COLS, .dtype = LT_F32};
    assert_int_equal(lt_cache_policy_parse(&o.policy, NULL, policy), LT_OK);
    return o;
}

static inline lt_cache *make(const fixture *f, const char *policy)
{
    const lt_cache_options o = options(policy);
    lt_cache *c;
    assert_int_equal(lt_cache_create(&c, f->dev, &o), LT_OK);
    return c;
}

#endif
