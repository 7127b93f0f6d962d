#endif /* SHMSYNC_IMPLEMENTATION */

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SHMSYNC_H */
