/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of OpenSSL that src/am/tls calls. Each jumps to that of the
 * library, which is loaded when tls:// is first asked for: a process without it
 * needs no OpenSSL. The two that come before all others, OpenSSL_version_num()
 * and OpenSSL_version(), load it, and say 0 and why where there is none. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#define FUNCTIONS(F)                                                           \
    F(ASN1_STRING_get0_data)                                                   \
    F(ASN1_STRING_length)                                                      \
    F(ASN1_STRING_to_UTF8)                                                     \
    F(ASN1_TIME_to_tm)                                                         \
    F(BIO_clear_flags)                                                         \
    F(BIO_ctrl)                                                                \
    F(BIO_free)                                                                \
    F(BIO_get_data)                                                            \
    F(BIO_get_new_index)                                                       \
    F(BIO_meth_free)                                                           \
    F(BIO_meth_new)                                                            \
    F(BIO_meth_set_ctrl)                                                       \
    F(BIO_meth_set_read_ex)                                                    \
    F(BIO_meth_set_write_ex)                                                   \
    F(BIO_new)                                                                 \
    F(BIO_new_fd)                                                              \
    F(BIO_s_mem)                                                               \
    F(BIO_set_data)                                                            \
    F(BIO_set_flags)                                                           \
    F(BIO_set_init)                                                            \
    F(CRYPTO_free)                                                             \
    F(ERR_clear_error)                                                         \
    F(ERR_peek_error)                                                          \
    F(ERR_peek_last_error)                                                     \
    F(ERR_reason_error_string)                                                 \
    F(EVP_Digest)                                                              \
    F(EVP_KDF_CTX_free)                                                        \
    F(EVP_KDF_CTX_new)                                                         \
    F(EVP_KDF_derive)                                                          \
    F(EVP_KDF_fetch)                                                           \
    F(EVP_KDF_free)                                                            \
    F(EVP_MD_is_a)                                                             \
    F(EVP_PKEY_free)                                                           \
    F(EVP_PKEY_get_group_name)                                                 \
    F(EVP_PKEY_is_a)                                                           \
    F(EVP_sha256)                                                              \
    F(GENERAL_NAMES_free)                                                      \
    F(GENERAL_NAME_get0_value)                                                 \
    F(OPENSSL_sk_num)                                                          \
    F(OPENSSL_sk_value)                                                        \
    F(OSSL_PARAM_construct_end)                                                \
    F(OSSL_PARAM_construct_octet_string)                                       \
    F(OSSL_PARAM_construct_utf8_string)                                        \
    F(PEM_read_bio_PrivateKey)                                                 \
    F(SSL_CIPHER_find)                                                         \
    F(SSL_CIPHER_get_name)                                                     \
    F(SSL_CTX_check_private_key)                                               \
    F(SSL_CTX_clear_options)                                                   \
    F(SSL_CTX_ctrl)                                                            \
    F(SSL_CTX_free)                                                            \
    F(SSL_CTX_get0_certificate)                                                \
    F(SSL_CTX_get_cert_store)                                                  \
    F(SSL_CTX_load_verify_file)                                                \
    F(SSL_CTX_new)                                                             \
    F(SSL_CTX_set_alpn_protos)                                                 \
    F(SSL_CTX_set_alpn_select_cb)                                              \
    F(SSL_CTX_set_cert_verify_callback)                                        \
    F(SSL_CTX_set_ciphersuites)                                                \
    F(SSL_CTX_set_client_hello_cb)                                             \
    F(SSL_CTX_set_default_passwd_cb)                                           \
    F(SSL_CTX_set_default_passwd_cb_userdata)                                  \
    F(SSL_CTX_set_max_early_data)                                              \
    F(SSL_CTX_set_num_tickets)                                                 \
    F(SSL_CTX_set_options)                                                     \
    F(SSL_CTX_set_psk_find_session_callback)                                   \
    F(SSL_CTX_set_psk_use_session_callback)                                    \
    F(SSL_CTX_set_session_id_context)                                          \
    F(SSL_CTX_set_verify)                                                      \
    F(SSL_CTX_set_verify_depth)                                                \
    F(SSL_CTX_up_ref)                                                          \
    F(SSL_CTX_use_PrivateKey)                                                  \
    F(SSL_CTX_use_certificate_chain_file)                                      \
    F(SSL_SESSION_free)                                                        \
    F(SSL_SESSION_new)                                                         \
    F(SSL_SESSION_set1_id_context)                                             \
    F(SSL_SESSION_set1_master_key)                                             \
    F(SSL_SESSION_set_cipher)                                                  \
    F(SSL_SESSION_set_protocol_version)                                        \
    F(SSL_alert_desc_string_long)                                              \
    F(SSL_client_hello_get0_ext)                                               \
    F(SSL_ctrl)                                                                \
    F(SSL_do_handshake)                                                        \
    F(SSL_free)                                                                \
    F(SSL_get0_alpn_selected)                                                  \
    F(SSL_get0_param)                                                          \
    F(SSL_get_current_cipher)                                                  \
    F(SSL_get_error)                                                           \
    F(SSL_get_ex_data)                                                         \
    F(SSL_get_ex_data_X509_STORE_CTX_idx)                                      \
    F(SSL_key_update)                                                          \
    F(SSL_new)                                                                 \
    F(SSL_read_ex)                                                             \
    F(SSL_select_next_proto)                                                   \
    F(SSL_session_reused)                                                      \
    F(SSL_set_accept_state)                                                    \
    F(SSL_set_bio)                                                             \
    F(SSL_set_connect_state)                                                   \
    F(SSL_set_default_read_buffer_len)                                         \
    F(SSL_set_ex_data)                                                         \
    F(SSL_write_ex)                                                            \
    F(TLS_method)                                                              \
    F(X509_LOOKUP_file)                                                        \
    F(X509_NAME_ENTRY_get_data)                                                \
    F(X509_NAME_get_entry)                                                     \
    F(X509_NAME_get_index_by_NID)                                              \
    F(X509_NAME_print_ex)                                                      \
    F(X509_STORE_CTX_get0_cert)                                                \
    F(X509_STORE_CTX_get_current_cert)                                         \
    F(X509_STORE_CTX_get_error)                                                \
    F(X509_STORE_CTX_get_ex_data)                                              \
    F(X509_STORE_CTX_set_error)                                                \
    F(X509_STORE_add_lookup)                                                   \
    F(X509_STORE_set_flags)                                                    \
    F(X509_VERIFY_PARAM_set1_host)                                             \
    F(X509_VERIFY_PARAM_set1_ip_asc)                                           \
    F(X509_VERIFY_PARAM_set_hostflags)                                         \
    F(X509_cmp_current_time)                                                   \
    F(X509_get0_notAfter)                                                      \
    F(X509_get0_notBefore)                                                     \
    F(X509_get_X509_PUBKEY)                                                    \
    F(X509_get_ext_d2i)                                                        \
    F(X509_get_issuer_name)                                                    \
    F(X509_get_subject_name)                                                   \
    F(X509_load_crl_file)                                                      \
    F(X509_verify_cert)                                                        \
    F(X509_verify_cert_error_string)                                           \
    F(i2d_X509_PUBKEY)

#ifdef __x86_64__
#define JUMP(place) "endbr64\n\tjmp *" place "(%rip)\n"
#else /* aarch64: CMakeLists.txt takes this file for no other */
#define JUMP(place)                                                            \
    "hint #34\n\tadrp x16, " place "\n\tldr x16, [x16, :lo12:" place           \
    "]\n\tbr x16\n"
#endif

#define FORWARD(name)                                                          \
    __attribute__((visibility("hidden"))) void *tmsgpy_late_##name;            \
    __asm__(".pushsection .text\n\t.p2align 4\n\t.globl " #name                \
            "\n\t.hidden " #name "\n\t.type " #name ", %function\n" #name      \
            ":\n\t.cfi_startproc\n\t" JUMP(                                    \
                "tmsgpy_late_" #name) "\t.cfi_endproc\n\t.size " #name         \
                                      ", .-" #name "\n\t.popsection");

FUNCTIONS(FORWARD)

static struct {
    pthread_once_t once;
    unsigned long (*version_num)(void);
    const char *(*version)(int what);
    char why[256]; /* "": it is there */
} late = {.once = PTHREAD_ONCE_INIT};

/* Finds a function, or notes why not. */
static void *find(void *library, const char *name)
{
    void *found = library == NULL ? NULL : dlsym(library, name);

    if (found == NULL && late.why[0] == '\0') {
        const char *why = dlerror();

        snprintf(late.why, sizeof(late.why), "%s",
                 why != NULL ? why : TMSGPY_SSL);
    }
    return found;
}

#define FIND(name) tmsgpy_late_##name = find(library, #name);

static void load(void)
{
    void *library = dlopen(TMSGPY_SSL, RTLD_NOW | RTLD_LOCAL); /* for good */

    *(void **)&late.version_num = find(library, "OpenSSL_version_num");
    *(void **)&late.version = find(library, "OpenSSL_version");
    FUNCTIONS(FIND)
}

unsigned long OpenSSL_version_num(void)
{
    pthread_once(&late.once, load);
    return late.why[0] == '\0' ? late.version_num() : 0;
}

const char *OpenSSL_version(int what)
{
    pthread_once(&late.once, load);
    return late.why[0] == '\0' ? late.version(what) : late.why;
}
