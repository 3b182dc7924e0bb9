/* Stands in for bcryptprimitives.dll, which the standard library asks for chance and Wine before 9 lacks.
   Only for tests under Wine; Windows has its own. */
#include <windows.h>
#include <bcrypt.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T length)
{
    NTSTATUS status = BCryptGenRandom(NULL, bytes, (ULONG)length, BCRYPT_USE_SYSTEM_PREFERRED_RNG);
    return status == 0;
}
